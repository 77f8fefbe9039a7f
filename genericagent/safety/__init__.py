"""What protects the user: what may run, and where; keys kept out of texts, outside text marked, terminals not driven."""
