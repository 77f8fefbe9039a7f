"""What the tools do, as plain functions that know nothing of the loop."""
