"""The REST API: routes parse, call one function and shape the answer."""
