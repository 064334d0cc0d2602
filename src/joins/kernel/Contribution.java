package tailorbird.kernel;

/** Extracts what a row contributes to its group: the length of the group's key (4 bytes), the key, the arguments. */
final class Contribution {
  private final Group group;
  private final int[] at;

  Contribution(Group group) {
    this.group = group;
    int[] picks = java.util.Arrays.copyOf(group.keys, group.keys.length + group.arguments.length);
    System.arraycopy(group.arguments, 0, picks, group.keys.length, group.arguments.length);
    at = Texts.room(picks);
  }

  /** The contribution of the whole row in a message without a row id. */
  byte[] of(byte[] message) {
    return write(message, new Bytes(64)).array();
  }

  /** Appends the contribution of a message's whole row to `kept`, which is empty. */
  Bytes write(byte[] message, Bytes kept) {
    Texts.find(message, Message.textAt(message, Message.ROW), at);
    kept.put(0).put(0).put(0).put(0);
    for (int i = 0; i < group.keys.length; i++) {
      if (i > 0) kept.put(',');
      int start = at[group.keys[i]], end = at[group.keys[i] + 1] - 1;
      if (!group.binary[i] || Texts.isNull(message, start, end)) kept.put(message, start, end);
      else kept.put(Doubles.text(Numeric.binary(message, start, end)));
    }
    int length = kept.length - 4;
    for (int i = 0; i < 4; i++) kept.data[i] = (byte) (length >>> 24 - 8 * i);
    for (int i = 0; i < group.arguments.length; i++) {
      if (i > 0) kept.put(',');
      kept.put(message, at[group.arguments[i]], at[group.arguments[i] + 1] - 1);
    }
    return kept;
  }

  /** Where the arguments of a contribution begin. */
  static int argumentsAt(byte[] kept) {
    int end = 4;
    for (int i = 0; i < 4; i++) end += (kept[i] & 0xFF) << 24 - 8 * i;
    return end;
  }
}
