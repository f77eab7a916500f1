"""What follows from counts and durations: correctness, comparison and pace (all of it pure)."""
