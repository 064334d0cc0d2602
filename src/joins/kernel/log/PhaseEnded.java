package tailorbird.kernel;

/**
 * The changes of a table's exact phase cannot be added up, or no longer: `joins.steps.route.PhaseEndedError`. It ends
 * the query before the batch writes anything. `joins.engine.spark_query` reads the message.
 */
final class PhaseEnded extends IllegalStateException {
  PhaseEnded(String name, long number) {
    super(name + " " + number);
  }
}
