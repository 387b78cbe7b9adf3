"""SessionService on the wire, one module per concern."""
