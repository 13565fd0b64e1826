"""One driver per database: connections, transactions, error mapping, hints. Nothing else imports a database package."""
