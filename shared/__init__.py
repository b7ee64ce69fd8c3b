"""What all parts of Headrace agree on."""
