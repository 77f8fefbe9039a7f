"""Event hooks and the plugins that come with the program."""
