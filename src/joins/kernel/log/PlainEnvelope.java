package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;

/**
 * Reads envelopes as nearly all producers write them, in one pass over the bytes. Used values are copied as they are,
 * and the rest is skipped. Anything rare (an escape in a used value, an exponent, a value that must be converted, a
 * wrapped envelope) and anything wrong is left to `Envelope`, which reads the record again.
 */
final class PlainEnvelope {
  private static final int DEEPEST = 50, LONGEST = 200; // levels; characters of a number. `Envelope` takes more
  private static final int UNKNOWN = -1, NOTHING = -2; // of a field; the end of an object
  private static final byte[][] FIELDS = names(new String[] {"op", "before", "after", "source", "payload"});
  private static final byte[][] ORIGIN = names(new String[] {"ts_ms", "sequence", "partial", "exact", "inexact_after"});
  private static final int OP = 0, BEFORE = 1, AFTER = 2, SOURCE = 3, PAYLOAD = 4;
  private static final int TS = 0, SEQUENCE = 1, PARTIAL = 2, EXACT = 3, INEXACT_AFTER = 4;
  private static final Unusual UNUSUAL = new Unusual();
  private final Fit[] fits;
  private final Names envelope = new Names(FIELDS), origin = new Names(ORIGIN), columns;
  private byte[] text;
  private int at, end;
  private boolean escaped; // the last text contains an escape

  PlainEnvelope(String[] columns, Fit[] fits) {
    this.columns = new Names(names(columns));
    this.fits = fits;
  }

  /** Reads a record, which is valid UTF-8, into `event`. False: its fields are undefined, `Envelope` must read it. */
  boolean read(byte[] record, Event event) {
    text = record;
    at = 0;
    end = record.length;
    try {
      envelope(event);
      space();
      return at == end;
    } catch (Unusual e) {
      return false;
    } catch (IndexOutOfBoundsException e) { // the record ends too early
      return false;
    }
  }

  private void envelope(Event event) throws Unusual {
    open();
    for (int field = envelope.next(true); field != NOTHING; field = envelope.next(false)) {
      if (field == OP) {
        int start = string();
        if (at - start != 3 || escaped || text[start + 1] < 0) throw UNUSUAL;
        event.op = (char) text[start + 1];
      } else if (field == BEFORE) event.before = text[at] == 'n' ? nothing() : image();
      else if (field == AFTER) event.after = text[at] == 'n' ? nothing() : image();
      else if (field == SOURCE) origin(event);
      else if (field == PAYLOAD) throw UNUSUAL;
      else skip(1);
    }
  }

  private byte[][] nothing() throws Unusual {
    literal();
    return null;
  }

  private void origin(Event event) throws Unusual {
    event.ts = event.sequence = event.phase = event.inexactAfter = 0;
    event.partial = false;
    open();
    for (int field = origin.next(true); field != NOTHING; field = origin.next(false)) {
      if (field == TS) event.ts = number();
      else if (field == SEQUENCE && text[at] == '"') {
        at++;
        event.sequence = number();
        if (text[at++] != '"') throw UNUSUAL;
      } else if (field == SEQUENCE) event.sequence = number();
      else if (field == EXACT) event.phase = number();
      else if (field == INEXACT_AFTER) event.inexactAfter = number();
      else if (field == PARTIAL && text[at] != 't' && text[at] != 'f') throw UNUSUAL;
      else if (field == PARTIAL) event.partial = text[literal()] == 't';
      else skip(2);
    }
  }

  private byte[][] image() throws Unusual {
    byte[][] row = new byte[fits.length][];
    open();
    for (int field = columns.next(true); field != NOTHING; field = columns.next(false)) {
      if (field == UNKNOWN) {
        skip(2);
        continue;
      }
      byte first = text[at];
      int start = at;
      Fit fit = fits[field];
      boolean fitting;
      if (first == '"') {
        string();
        fitting = !escaped && fit.isText(text, start, at);
      } else if (first == 'n') {
        literal();
        row[field] = Envelope.NULL;
        continue;
      } else if (first == 't' || first == 'f') {
        literal();
        fitting = fit.isBool();
      } else {
        boolean whole = digits();
        fitting = fit.isNumber(text, start, at, whole);
      }
      if (!fitting) throw UNUSUAL;
      row[field] = Arrays.copyOfRange(text, start, at);
    }
    return row;
  }

  /** Reads an integer of up to 18 digits. */
  private long number() throws Unusual {
    int start = at;
    boolean negative = text[at] == '-';
    if (negative) at++;
    int first = at;
    long number = 0;
    for (; text[at] >= '0' && text[at] <= '9'; at++) number = 10 * number + text[at] - '0';
    int length = at - first;
    if (length == 0 || length > 18 || length > 1 && text[first] == '0') throw UNUSUAL;
    byte next = text[at];
    if (next == '.' || next == 'e' || next == 'E' || negative && number == 0) throw UNUSUAL;
    return start == first ? number : -number;
  }

  /** Passes a number without exponent; returns whether it is an integer. */
  private boolean digits() throws Unusual {
    int start = at;
    if (text[at] == '-') at++;
    int first = at;
    while (text[at] >= '0' && text[at] <= '9') at++;
    if (at == first || at - first > 1 && text[first] == '0') throw UNUSUAL;
    boolean whole = text[at] != '.';
    if (!whole) {
      int point = at++;
      while (text[at] >= '0' && text[at] <= '9') at++;
      if (at == point + 1) throw UNUSUAL;
    }
    if (text[at] == 'e' || text[at] == 'E' || at - start > LONGEST) throw UNUSUAL;
    return whole;
  }

  /** Passes true, false or null; returns where it begins. */
  private int literal() throws Unusual {
    int start = at;
    String wanted = text[at] == 't' ? "true" : text[at] == 'f' ? "false" : "null";
    for (int i = 0; i < wanted.length(); i++) if (text[at++] != wanted.charAt(i)) throw UNUSUAL;
    return start;
  }

  /** Passes a text; returns where its quote is. */
  private int string() throws Unusual {
    int start = at;
    if (text[at++] != '"') throw UNUSUAL;
    escaped = false;
    for (; text[at] != '"'; at++) {
      if (text[at] >= 0 && text[at] < ' ') throw UNUSUAL;
      if (text[at] == '\\') escape();
    }
    at++;
    return start;
  }

  private void escape() throws Unusual {
    escaped = true;
    byte kind = text[++at];
    if (kind != 'u') {
      if ("\"\\/bfnrt".indexOf(kind) < 0) throw UNUSUAL;
      return;
    }
    for (int i = 0; i < 4; i++) if (Character.digit((char) text[++at], 16) < 0 || text[at] < 0) throw UNUSUAL;
  }

  /** Passes a value of any kind, inside of `depth` objects and arrays. */
  private void skip(int depth) throws Unusual {
    byte first = text[at];
    if (first == '"') string();
    else if (first == '{' || first == '[') {
      if (depth == DEEPEST) throw UNUSUAL;
      byte close = first == '{' ? (byte) '}' : (byte) ']';
      at++;
      space();
      if (text[at] == close) {
        at++;
        return;
      }
      for (;;) {
        if (first == '{') {
          string();
          colon();
        }
        skip(depth + 1);
        space();
        byte next = text[at++];
        if (next == close) return;
        if (next != ',') throw UNUSUAL;
        space();
      }
    } else if (first == 't' || first == 'f' || first == 'n') literal();
    else digits();
  }

  private void space() {
    while (at < end && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) at++;
  }

  private void open() throws Unusual {
    space();
    if (text[at++] != '{') throw UNUSUAL;
  }

  private void colon() throws Unusual {
    space();
    if (text[at++] != ':') throw UNUSUAL;
    space();
  }

  private static byte[][] names(String[] names) {
    byte[][] found = new byte[names.length][];
    for (int i = 0; i < found.length; i++) found[i] = names[i].getBytes(StandardCharsets.UTF_8);
    return found;
  }

  /** Finds the numbers of an object's fields. A producer writes them in one order, so the last order is tried first. */
  private final class Names {
    private final Map<Object, Integer> numbers = new HashMap<Object, Integer>();
    private byte[][] order = new byte[16][];
    private int[] found = new int[16];
    private int place;

    Names(byte[][] names) {
      for (int i = 0; i < names.length; i++) numbers.put(ByteBuffer.wrap(names[i]), Integer.valueOf(i));
    }

    /** Moves to the value of the next field; returns the field's number, UNKNOWN or NOTHING. */
    int next(boolean first) throws Unusual {
      space();
      if (first) place = 0;
      if (text[at] == '}') {
        at++;
        return NOTHING;
      }
      if (!first) {
        if (text[at++] != ',') throw UNUSUAL;
        space();
      }
      int number = name();
      colon();
      return number;
    }

    private int name() throws Unusual {
      if (place == order.length) {
        order = (byte[][]) Arrays.copyOf(order, 2 * place);
        found = Arrays.copyOf(found, 2 * place);
      }
      byte[] known = order[place];
      int after = known == null ? 0 : at + known.length + 1; // where the name's closing quote is, if it is this name
      if (known != null && after < end && text[at] == '"' && text[after] == '"'
          && Arrays.equals(text, at + 1, after, known, 0, known.length)) {
        at = after + 1;
        return found[place++];
      }
      int start = string();
      if (escaped) throw UNUSUAL;
      byte[] name = Arrays.copyOfRange(text, start + 1, at - 1);
      Integer number = (Integer) numbers.get(ByteBuffer.wrap(name));
      order[place] = name;
      found[place] = number == null ? UNKNOWN : number.intValue();
      return found[place++];
    }
  }

  /** Thrown without a stack for records that `Envelope` must read. */
  private static final class Unusual extends Exception {
    Unusual() {
      super(null, null, false, false);
    }
  }
}
