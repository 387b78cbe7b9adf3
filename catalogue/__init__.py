"""What is known of models: context windows, abilities and list prices, from a data file.

And of what may be asked for of a sandbox, and how hosts, repositories, package indexes and skills
are written. Apart from the services, because several ask it; see
ADR 15.
"""
