"""Commands that the section ``start`` times."""
