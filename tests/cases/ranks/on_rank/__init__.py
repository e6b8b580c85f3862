"""What ranks do in the cases: each function of these modules runs on all ranks at once."""
