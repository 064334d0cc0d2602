package tailorbird.kernel;

/** Prints the limit of a query before each batch. Arguments: the most changes, then each batch's milliseconds and MiB;
 * `-` before them: the batch has fewer changes than the limit. */
public class KernelPace {
  public static void main(String[] arguments) {
    Pace pace = Pace.of("query", Long.parseLong(arguments[0]));
    System.out.println(pace.limit());
    for (int i = 1; i < arguments.length; i += 2) {
      boolean small = arguments[i].startsWith("-");
      if (!small) Pace.of("query").reached();
      pace.took(Long.parseLong(small ? arguments[i].substring(1) : arguments[i]), Long.parseLong(arguments[i + 1]) << 20);
      System.out.println(pace.limit());
    }
  }
}
