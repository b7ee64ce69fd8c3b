"""Pure words of the domain: no input, no output."""
