"""Sessions in a relational database, through SQLAlchemy Core."""
