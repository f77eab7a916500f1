"""Sources: what touches the world and turns it into records."""
