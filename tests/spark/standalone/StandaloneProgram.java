import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;

/** Program that starts Spark and creates the file that its first argument names. The second selects the ending. */
public final class StandaloneProgram {
  private StandaloneProgram() {}

  public static void main(String[] arguments) throws Exception {
    SparkContext spark = SparkContext.getOrCreate();
    Files.createFile(Paths.get(arguments[0]));
    switch (arguments[1]) {
      case "stop":
        new JavaSparkContext(spark).parallelize(Arrays.asList(1, 2, 3)).count();
        spark.stop();
        break;
      case "throw":
        throw new IllegalStateException("no price for order 7");
      default:
        Thread.sleep(Long.MAX_VALUE);
    }
  }
}
