"""Run joins on a Spark cluster: the spark-submit command, the files that it ships, and checks of the executors."""
