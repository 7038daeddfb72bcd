"""The library of the script contract: copy what you need into your own project."""
