package tailorbird.kernel;

/** A change of one row: its images as JSON texts in the order of the source's columns, null where there is no row. */
final class Event {
  char op = ' ';
  byte[][] before, after;
  long ts, sequence, version;
  long place = -1; // where the record stands that tells `after`: `Message.place`
  byte[] trace; // instead, of a row that others made of records
  int partition;
  boolean partial; // the log may lack what its row was before (`cdc.model.event.SourceInfo`), or this record what it is
  boolean told; // nothing may be left out because it was said before
  boolean blind; // NULL stands in `before` for what the record does not tell: it may have been told otherwise
  boolean mends; // the row may be shown with other values than those of its newest record
}
