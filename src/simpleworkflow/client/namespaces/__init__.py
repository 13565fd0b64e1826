"""The namespaces of App: app.schedules, app.outbox, app.retention and so on, each a class that holds the Client."""
