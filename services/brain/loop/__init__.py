"""The shell around the pure core: it performs decisions and appends what came of them."""
