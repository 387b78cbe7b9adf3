"""What is known of models: context windows, abilities and list prices, from a data file.

Apart from the services, because the session service and the brain both ask it; see ADR 15.
"""
