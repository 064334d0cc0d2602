"""The search engines of indexes: what each must do, and how a collection is opened."""
