"""What the commands share: options, arguments as values, opening the database, messages, signals."""
