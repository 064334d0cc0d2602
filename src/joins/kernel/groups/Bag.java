package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.streaming.MapState;

/**
 * One bag of one group. While its tuples fill one page, they are in the group's value. Otherwise the value has the
 * directory: each page's number and first tuple. So a change reads and writes the directory and one page.
 */
final class Bag {
  private static final byte[] EMPTY = new byte[0];
  final Tally tally;
  private final int number;
  private final MapState<byte[], byte[]> pages;
  private byte[] only = EMPTY; // its one page; null: it has several
  private List<byte[]> begins = new ArrayList<byte[]>(); // empty for the first page
  private List<byte[]> places = new ArrayList<byte[]>(); // the number under which each is stored
  private byte[] first, last; // tuples, if there are several pages
  private long next; // number of a new page

  Bag(int number, Tally tally, MapState<byte[], byte[]> pages) {
    this.number = number;
    this.tally = tally;
    this.pages = pages;
  }

  void read(ByteBuffer from) {
    tally.read(from);
    int count = (int) Bytes.count(from);
    if (count == 0) only = Bytes.block(from);
    if (count == 0) return;
    only = null;
    next = Bytes.count(from);
    first = Bytes.block(from);
    last = Bytes.block(from);
    for (int i = 0; i < count; i++) {
      places.add(place(Bytes.count(from)));
      begins.add(Bytes.block(from));
    }
  }

  void write(Bytes out) {
    tally.write(out);
    if (only != null) {
      out.putCount(0).putBlock(only);
      return;
    }
    out.putCount(places.size()).putCount(next).putBlock(first).putBlock(last);
    for (int i = 0; i < places.size(); i++) {
      out.putCount(ByteBuffer.wrap((byte[]) places.get(i), 1, 8).getLong()).putBlock((byte[]) begins.get(i));
    }
  }

  private byte[] place(long page) {
    return new Bytes(9).put(number).putLong(page).array();
  }

  /** The least tuple; null if there is none. */
  byte[] first() {
    if (only == null) return first;
    return only.length == 0 ? null : Page.first(only);
  }

  /** The greatest tuple; null if there is none. */
  byte[] last() {
    if (only == null) return last;
    return only.length == 0 ? null : Page.last(only);
  }

  /** The tuples in order, {tuple, count}; pages are read lazily. */
  Iterator<Object> tuples() {
    return new Iterator<Object>() {
      private int page;
      private ByteBuffer from = ByteBuffer.wrap(only == null ? EMPTY : only);

      public boolean hasNext() {
        while (!from.hasRemaining() && page < places.size()) from = ByteBuffer.wrap(stored(page++));
        return from.hasRemaining();
      }

      public Object next() {
        if (!hasNext()) throw new NoSuchElementException();
        byte[] tuple = Bytes.block(from);
        return new Object[] {tuple, Long.valueOf(Bytes.count(from))};
      }
    };
  }

  private byte[] stored(int page) {
    return (byte[]) pages.getValue((byte[]) places.get(page));
  }

  /** Adds to the counts of tuples (`Partial.sorted`); false if a count would fall below 0. */
  boolean change(List<Object[]> changed) {
    if (changed.isEmpty()) return true;
    Change change = new Change(changed);
    if (only == null ? !change.inPages() : !change.inOne()) return false;
    begins = change.newBegins;
    places = change.newPlaces;
    if (places.size() == 1) takeIn();
    else if (only == null && places.isEmpty()) only = EMPTY;
    return true;
  }

  /** Moves the tuples of a single remaining page back into the group's value. */
  private void takeIn() {
    only = stored(0);
    pages.removeKey((byte[]) places.get(0));
    places.clear();
    begins.clear();
  }

  /** Builds a new directory from the old one, page by page. */
  private final class Change {
    final List<byte[]> newBegins = new ArrayList<byte[]>(), newPlaces = new ArrayList<byte[]>();
    private final List<Object[]> changed;
    private byte[] tail; // the last page kept, if it was read

    Change(List<Object[]> changed) {
      this.changed = changed;
    }

    boolean inOne() {
      only = Page.merged(only, changed, 0, changed.size(), tally);
      if (only == null) return false;
      if (only.length <= Page.MOST) return true;
      keep(only, EMPTY, null);
      only = null;
      last = Page.last(tail);
      return true;
    }

    boolean inPages() {
      byte[] carried = EMPTY, begin = null; // content of a small page, to be merged into the next one
      int from = 0, end = places.size();
      for (int page = 0; page < end; page++) {
        int to = page + 1 < end ? until((byte[]) begins.get(page + 1), from) : changed.size();
        byte[] place = (byte[]) places.get(page), own = (byte[]) begins.get(page);
        if (from == to && begin == null) {
          append(place, own);
          continue;
        }
        byte[] merged = Page.merged(Page.joined(carried, stored(page)), changed, from, to, tally);
        if (merged == null) return false;
        from = to;
        begin = begin == null ? own : begin;
        if (merged.length == 0 || merged.length < Page.FEW && page + 1 < end) {
          pages.removeKey(place);
          carried = merged;
          continue;
        }
        keep(merged, begin, place);
        carried = EMPTY;
        begin = null;
      }
      findLast(end - 1);
      return true;
    }

    /** The index of the first change that belongs to a page with this first tuple, or to a later one. */
    private int until(byte[] begin, int from) {
      int to = from;
      while (to < changed.size() && Arrays.compareUnsigned((byte[]) ((Object[]) changed.get(to))[0], begin) < 0) to++;
      return to;
    }

    private void append(byte[] place, byte[] begin) {
      newPlaces.add(place);
      newBegins.add(begin);
      tail = null;
    }

    /** Stores a page; splits it if it is too large, the first part at `at`. */
    private void keep(byte[] page, byte[] begin, byte[] at) {
      List<byte[]> parts = Page.parted(page);
      if (newPlaces.isEmpty()) first = Page.first(page);
      for (int i = 0; i < parts.size(); i++) {
        byte[] part = (byte[]) parts.get(i), place = i == 0 && at != null ? at : place(next++);
        append(place, i == 0 ? begin : Page.separator(Page.last((byte[]) parts.get(i - 1)), Page.first(part)));
        pages.updateValue(place, part);
        tail = part;
      }
    }

    private void findLast(int former) {
      int now = newPlaces.size() - 1;
      if (tail == null && now >= 0 && newPlaces.get(now) != places.get(former)) {
        tail = (byte[]) pages.getValue((byte[]) newPlaces.get(now));
      }
      if (tail != null) last = Page.last(tail);
    }
  }
}
