"""Packages of environments: installed once, then found in every sandbox of the environment."""
