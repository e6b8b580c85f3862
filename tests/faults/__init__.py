"""Runs that are killed again and again, and must end as if they had not been."""
