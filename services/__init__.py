"""The services of Drover, one package each; none imports another."""
