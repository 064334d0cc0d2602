package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.LocalDate;

/** Finds the span of time in which a row satisfies conditions on the time: `joins.steps.temporal.span_of`. */
final class Span {
  static final long NEVER = 1L << 62; // microseconds: a span that begins or ends there does not begin or end
  private static final long SECOND = 1000000, DAY = 86400 * SECOND, MONDAY = 4 * DAY;
  private final int[] values, at;
  private final String[] operators, units;
  private final long[] before, months, after;

  Span(JsonNode bounds) {
    int count = bounds.size();
    values = new int[count];
    operators = new String[count];
    units = new String[count];
    before = new long[count];
    months = new long[count];
    after = new long[count];
    for (int i = 0; i < count; i++) {
      JsonNode bound = Message.at(bounds, Integer.valueOf(i));
      values[i] = Message.at(bound, "value").asInt();
      operators[i] = Message.at(bound, "operator").asText();
      units[i] = Message.at(bound, "unit").asText();
      before[i] = Message.at(bound, "before").asLong();
      months[i] = Message.at(bound, "months").asLong();
      after[i] = Message.at(bound, "after").asLong();
    }
    at = Texts.room(values);
  }

  /** Start and end of a row's span, in microseconds since 1970. */
  long[] of(byte[] payload) {
    Texts.find(payload, Message.textAt(payload, 0), at);
    long start = -NEVER, end = NEVER;
    for (int i = 0; i < values.length; i++) {
      int from = at[values[i]], length = at[values[i] + 1] - 1 - from;
      byte[] text = new byte[length];
      System.arraycopy(payload, from, text, 0, length);
      Long value = Times.moment(text);
      if (value == null) return new long[] {NEVER, NEVER};
      long later = later(i, value.longValue()), least = least(i, value.longValue());
      String operator = operators[i];
      if (operator.equals(">=")) end = Math.min(end, later);
      else if (operator.equals(">")) end = Math.min(end, least);
      else if (operator.equals("<")) start = Math.max(start, later);
      else if (operator.equals("<=")) start = Math.max(start, least);
      else {
        start = Math.max(start, least);
        end = Math.min(end, later);
      }
    }
    return new long[] {start, end};
  }

  /** When the moment of a condition exceeds a value. */
  private long later(int i, long value) {
    long shifted = shifted(i, value);
    if (units[i].isEmpty()) return shifted + 1 - before[i];
    return following(start(shifted, units[i]), units[i]) - before[i];
  }

  /** When the moment of a condition is at least a value. */
  private long least(int i, long value) {
    long shifted = shifted(i, value);
    if (units[i].isEmpty()) return shifted - before[i];
    long start = start(shifted, units[i]);
    return (start == shifted ? start : following(start, units[i])) - before[i];
  }

  /** The value without what is added after the cut; of its month's days, only whether it is the first moment counts. */
  private long shifted(int i, long value) {
    long shifted = value - after[i];
    if (months[i] == 0) return shifted;
    long month = start(shifted, "MONTH");
    return micros(day(month).minusMonths(months[i])) + (shifted > month ? 1 : 0);
  }

  private static long start(long micros, String unit) {
    long length = length(unit);
    if (length > 0) return micros - Math.floorMod(micros - (unit.equals("WEEK") ? MONDAY : 0), length);
    LocalDate first = day(micros).withDayOfMonth(1);
    return micros(first.minusMonths((first.getMonthValue() - 1) % months(unit)));
  }

  private static long following(long start, String unit) {
    long length = length(unit);
    return length > 0 ? start + length : micros(day(start).plusMonths(months(unit)));
  }

  private static long length(String unit) {
    if (unit.equals("SECOND")) return SECOND;
    if (unit.equals("MINUTE")) return 60 * SECOND;
    if (unit.equals("HOUR")) return 3600 * SECOND;
    if (unit.equals("DAY")) return DAY;
    return unit.equals("WEEK") ? 7 * DAY : 0;
  }

  private static int months(String unit) {
    return unit.equals("MONTH") ? 1 : unit.equals("QUARTER") ? 3 : 12;
  }

  private static LocalDate day(long micros) {
    return LocalDate.ofEpochDay(Math.floorDiv(micros, DAY));
  }

  private static long micros(LocalDate day) {
    return day.toEpochDay() * DAY;
  }
}
