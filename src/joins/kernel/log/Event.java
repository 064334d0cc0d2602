package tailorbird.kernel;

/** A change of one row: its images as JSON texts in the order of the source's columns, null where there is no row. */
final class Event {
  char op = ' ';
  byte[][] before, after;
  long ts, sequence, version;
  long place = -1; // the place of the record that contains `after`: `Message.place`
  byte[] trace; // replaces it for a row that a fragment made of records
  int partition;
  String table; // of a marker: the table of a merged table whose rows it deletes; else null
  boolean partial; // the log may lack the row's former values (`cdc.model.event.SourceInfo`), the record its new
  boolean always; // the change must be emitted in full even if it was emitted before
  boolean exact; // `before` is the image of the row's previous record, and both were read
  long phase, inexactAfter; // the exact phase to which the record belongs, or the last one before it; 0: none
  boolean blind; // NULL in `before` may stand for a value that the record does not contain
  boolean[] unknown; // by column: NULL stands for a value that the record does not contain; null: no such column
  boolean repairs; // the row may be visible with other values than those of its newest record
}
