"""Define the plan of a query, as data, and the expressions that it evaluates.

The package `joins.select` makes a plan from SQL. This package describes the result. Start with `joins.query.plan`,
then `joins.query.nodes` (tables and joins) and `joins.query.group` (groups). `expressions`, `functions` and `finish`
compile SQL expressions to Spark SQL. `describe` and `drawing` show a plan to people. `drift` and `loose_keys` warn
about a plan whose tables have changed or whose keys compare differently at the source."""
