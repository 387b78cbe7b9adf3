"""Skills and their versions in SQL; their archives are objects of the registry's."""
