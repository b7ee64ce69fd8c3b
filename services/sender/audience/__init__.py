"""Reads an audience's file, normalises its rows, loads them and reports what was left out."""
