"""The registry's database: tables, and one module of statements per aggregate."""
