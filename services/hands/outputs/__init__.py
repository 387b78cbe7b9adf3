"""What sessions leave: files below their outputs, published as files of the session."""
