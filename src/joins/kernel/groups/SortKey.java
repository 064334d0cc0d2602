package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;

/** Encodes tuples of a bag as bytes in their order (`Ordered`), from the texts of a row's arguments. */
final class SortKey {
  private final int[] arguments;
  private final int needed;
  private final Ordered[] values;

  SortKey(JsonNode bag) {
    arguments = Source.ints(Message.at(bag, "arguments"));
    needed = Message.at(bag, "needed").asInt();
    values = new Ordered[arguments.length];
    for (int i = 0; i < values.length; i++) {
      Integer number = Integer.valueOf(i);
      boolean descending = Message.at(Message.at(bag, "descending"), number).asBoolean();
      values[i] = new Ordered(Message.at(Message.at(bag, "types"), number), i >= needed, descending);
    }
  }

  /** Encodes the tuple of a row whose arguments are at `at`; false where it is not in the bag. */
  boolean write(byte[] text, int[] at, Bytes out) {
    for (int i = 0; i < needed; i++) {
      int argument = arguments[i];
      if (Texts.isNull(text, at[argument], at[argument + 1] - 1)) return false;
    }
    for (int i = 0; i < values.length; i++) {
      int argument = arguments[i];
      values[i].write(text, at[argument], at[argument + 1] - 1, out);
    }
    return true;
  }

  int width() {
    return values.length;
  }

  /** The offset after a tuple's first values. */
  int end(byte[] key, int count) {
    int at = 0;
    for (int i = 0; i < count; i++) at = values[i].end(key, at);
    return at;
  }

  /** Decodes a tuple's values to canonical texts, from index `place` on in an array. */
  void texts(byte[] key, byte[][] into, int place) {
    int at = 0;
    for (int i = 0; i < values.length; i++) {
      int end = values[i].end(key, at);
      into[place + i] = values[i].text(key, at, end);
      at = end;
    }
  }

  /** Decodes a tuple's last value to canonical text. */
  byte[] last(byte[] key) {
    int last = values.length - 1, at = 0;
    for (int i = 0; i < last; i++) at = values[i].end(key, at);
    return values[last].text(key, at, key.length);
  }
}
