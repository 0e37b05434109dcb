"""The database: engine, transactions, database time and migrations. Tables live with their nouns."""
