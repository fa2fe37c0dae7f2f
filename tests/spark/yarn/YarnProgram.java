import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;

/** Program that ends in the way that its argument selects. */
public final class YarnProgram {
  private YarnProgram() {}

  public static void main(String[] how) {
    SparkContext spark = SparkContext.getOrCreate();
    switch (how[0]) {
      case "throw":
        throw new IllegalStateException("no price for order 7");
      case "out-of-memory":
        List<long[]> all = new ArrayList<>();
        while (true) {
          all.add(new long[1 << 24]);
        }
      case "exit-3":
        System.exit(3);
        break;
      case "stop-throw":
        spark.stop();
        throw new IllegalStateException("no price for order 7");
      default:
        // For any other argument, the program returns from main.
    }
  }
}
