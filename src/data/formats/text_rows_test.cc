#include "data/formats/text_rows.h"

#include "data/formats/csv.h"
#include "data/formats/libsvm.h"
#include "data/test_folder.h"
#include "data/test_read.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

FileBytes text_file(const std::string& text) { return {"a-file", nullptr, std::as_bytes(std::span(text))}; }

using Floats = std::vector<float>;
using Integers = std::vector<std::int32_t>;

TEST(Csv, ReadsNumbersWithAndWithoutNames) {
  for (const std::string text :
       {"1,2.5,0\r\n-3e1,+4,1\n", "a,b,c\n1,2.5,0\n\n-30,4,1", "\"a\";\"b\";\"c\"\n\"1\"; 2.5 ;0\n-30;4;1\n",
        "label\tx\ty\n0\t1\t2.5\n1\t-30\t4\n", "x,Class,y\n1,0,2.5\n-30,1,4\n",
        "\xEF\xBB\xBF"
        "1,2.5,0\n-30,4,1"}) {
    const auto data = open_csv(text_file(text), {});
    EXPECT_EQ(data->spec().input, Shape{2}) << text;
    EXPECT_EQ(data->spec().classes, 2);
    const Batch batch = read_samples(*data, {1, 0});
    EXPECT_EQ(batch.dense, (Floats{-30, 4, 1, 2.5})) << text;
    EXPECT_EQ(batch.classes, (Integers{1, 0}));
  }
}

TEST(Csv, LabelsMayBeWordsValuesOrMissing) {
  const std::string words = "1,pear\n2,apple\n3,pear\n";
  const auto fruits = open_csv(text_file(words), {});
  EXPECT_EQ(fruits->class_names(), (std::vector<std::string>{"apple", "pear"}));
  EXPECT_EQ(read_samples(*fruits, {0, 1, 2}).classes, (Integers{1, 0, 1}));
  const std::string values = "1,0.5\n2,7\n";
  EXPECT_EQ(read_samples(*open_csv(text_file(values), {}), {1, 0}).targets, (Floats{7, 0.5}));
  const std::string whole = "1,3\n2,7\n";
  EXPECT_EQ(open_csv(text_file(whole), {})->spec().classes, 8);
  EXPECT_EQ(open_csv(text_file(whole), {.target = TargetKind::values})->spec().targets, 1);
  EXPECT_EQ(open_csv(text_file(whole), {.classes = 9})->spec().classes, 9);
  EXPECT_EQ(open_csv(text_file(whole), {.labelled = false})->spec().input, Shape{2});
  const std::string named = "x,label\n2,7\n";
  EXPECT_EQ(open_csv(text_file(named), {.labelled = false})->spec().input, Shape{1});
  EXPECT_EQ(read_samples(*open_csv(text_file(named), {.label_column = "x"}), {0}).classes, Integers{2});
  EXPECT_EQ(read_samples(*open_csv(text_file(named), {.label_column = "1"}), {0}).classes, Integers{2});
}

TEST(Csv, DoubledQuotesAreSingleInNames) {
  const std::string text = "\"x\"\"1\",label\n1,\"c\"\"d\"\n2, \"\"\"e\"\"\" \n3,\"f,g\"\n";
  const auto data = open_csv(text_file(text), {});
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"\"e\"", "c\"d", "f,g"}));
}

TEST(Csv, NamesThatAreNoUtf8AreThoseThatAModelHas) {
  class Names final : public Dataset {
   public:
    Names() {
      spec_.input = Shape{1};
      spec_.classes = 2;
    }
    const SampleSpec& spec() const override { return spec_; }
    std::uint64_t size() const override { return 0; }
    void read(std::span<const std::uint64_t>, std::uint64_t, Batch&) const override {}
    std::vector<std::string> class_names() const override { return {"bar", "caf\xEF\xBF\xBD"}; }

   private:
    SampleSpec spec_;
  };
  const Names names;
  const std::string text = "1,caf\xE9\n2,bar\n";
  EXPECT_EQ(read_samples(*open_csv(text_file(text), {.like = &names}), {0, 1}).classes, (Integers{1, 0}));
}

TEST(Csv, TestPartHasTheClassesOfTheTrainingPart) {
  const std::string train = "1,pear\n2,apple\n3,plum\n";
  const std::string test = "1,plum\n";
  const std::string wrong = "1,plum\n2,nut\n";
  const auto fruits = open_csv(text_file(train), {});
  const auto more = open_csv(text_file(test), {.like = fruits.get()});
  EXPECT_EQ(more->spec().classes, 3);
  EXPECT_EQ(read_samples(*more, {0}).classes, Integers{2});
  EXPECT_THAT(error_of([&] { open_csv(text_file(wrong), {.like = fruits.get()}); }),
              HasSubstr("a-file:2: label 'nut' is none of the 3 classes"));
}

TEST(Csv, LeavesOutTheLabelsWhenOnlyInputsAreWanted) {
  const std::string train = "kind,a,b\npear,1,2\napple,3,4\n";
  const auto fruits = open_csv(text_file(train), {.label_column = "kind"});
  const TextOptions inputs = {.labelled = false, .like = fruits.get()};
  for (const std::string text : {"a,b\n5,6\n", "kind,a,b\n\napple,5,6\n", "a,b,what\n5,6,pear\n", "5,pear,6\n"}) {
    EXPECT_EQ(read_samples(*open_csv(text_file(text), inputs), {0}).dense, (Floats{5, 6})) << text;
  }
  const auto message = [&](const std::string& text) { return error_of([&] { open_csv(text_file(text), inputs); }); };
  EXPECT_EQ(message("a,b,c\n1,2,3\n"),
            "a-file: 3 columns, but the model takes 2: say which column is the label, as in --label-column c");
  EXPECT_THAT(message("1,2,plum\n"), HasSubstr("--label-column 3"));
  EXPECT_THAT(message("pear,2,apple\n"), HasSubstr("--label-column 3"));
  EXPECT_EQ(message("1,2,3,4\n"), "a-file:1: features: 4, expected 2");
}

TEST(Csv, ErrorsNameFileLineAndColumn) {
  const auto message = [](const std::string& text, const TextOptions& options = {}) {
    return error_of([&] { open_csv(text_file(text), options); });
  };
  EXPECT_EQ(message("a,b\n1,0\n2,x,0\n"), "a-file:3: 3 columns, expected 2");
  EXPECT_EQ(message("1,2,0\n1,x,0\n"), "a-file:2: column 2: expected a finite number, not 'x'");
  EXPECT_EQ(message("1,2,0\n1,,0\n"), "a-file:2: column 2 is empty: expected a number");
  EXPECT_THAT(message("1,2,0\n1,nan,0\n"), HasSubstr("not 'nan'"));
  EXPECT_THAT(message("1,2,0\n1,1e39,0\n"), HasSubstr("not '1e39'"));
  EXPECT_THAT(message("1,2,0\n1,2,\n"), HasSubstr("a-file:2: the label is empty"));
  EXPECT_THAT(message("1,2,0\n1,2,no\n"), HasSubstr("a-file:2: label 'no' is not a finite number"));
  EXPECT_THAT(message(""), HasSubstr("holds no samples"));
  EXPECT_THAT(message("a,b\n"), HasSubstr("holds no samples"));
  EXPECT_THAT(message("1\n2\n"), HasSubstr("one column only"));
  EXPECT_THAT(message("1,\"2,0\n"), HasSubstr("quote is not closed"));
  EXPECT_THAT(message("a,b\n1,0\n", {.label_column = "z"}), HasSubstr("no column 'z'"));
  EXPECT_THAT(message("1,2.5\n", {.target = TargetKind::classes}), HasSubstr("label 2.5: expected a class"));
}

TEST(Libsvm, ReadsSparseRows) {
  const std::string text = "+1 1:0.5 7:2 # a comment\n-1\n\n1 3:-1\n";
  const auto data = open_libsvm(text_file(text), {});
  EXPECT_TRUE(data->spec().sparse);
  EXPECT_EQ(data->spec().input, Shape{7});
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"-1", "1"}));
  const Batch batch = read_samples(*data, {2, 0, 1});
  EXPECT_EQ(batch.classes, (Integers{1, 1, 0}));
  EXPECT_EQ(batch.sparse.offsets, (std::vector<std::int64_t>{0, 1, 3, 3}));
  EXPECT_EQ(batch.sparse.columns, (Integers{2, 0, 6}));
  EXPECT_EQ(batch.sparse.values, (Floats{-1, 0.5, 2}));
}

TEST(Libsvm, TestPartAgreesWithTraining) {
  const std::string train = "+1 1:0.5 7:2\n-1 2:1\n";
  const std::string test = "+1 3:1\n";
  const std::string beyond = "+1 8:1\n";
  const auto data = open_libsvm(text_file(train), {});
  const auto more = open_libsvm(text_file(test), {.like = data.get()});
  EXPECT_EQ(more->spec().input, Shape{7});
  EXPECT_EQ(read_samples(*more, {0}).classes, Integers{1});
  EXPECT_EQ(open_libsvm(text_file(test), {.features = 100})->spec().input, Shape{100});
  EXPECT_EQ(error_of([&] { open_libsvm(text_file(beyond), {.like = data.get()}); }),
            "a-file:1: feature 8, expected at most 7");
}

TEST(Libsvm, ErrorsNameFileAndLine) {
  const auto message = [](const std::string& text) { return error_of([&] { open_libsvm(text_file(text), {}); }); };
  EXPECT_EQ(message("1 1:1\n0 0:1\n"), "a-file:2: index 0: indices start at 1 and end below 2^31");
  EXPECT_EQ(message("1 3:1 3:2\n"), "a-file:1: index 3 after 3: indices must rise");
  EXPECT_EQ(message("1 3:1 x\n"), "a-file:1: entry 2: expected INDEX:VALUE");
  EXPECT_EQ(message("1 3:\n"), "a-file:1: index 3 is empty: expected a number");
  EXPECT_EQ(message("1:1\n"), "a-file:1: the label is empty");
  EXPECT_THAT(message("1 99999999999:1\n"), HasSubstr("index 99999999999"));
  EXPECT_THAT(message("1\n0\n"), HasSubstr("no line has a feature"));
}

TEST(TextRows, FilesLargerThanTheLimitAreParsedOnRead) {
  std::string csv = "a,b,label\n";
  std::string svm;
  for (int i = 0; i < 50; ++i) {
    csv += fmt::format("{},{},{}\r\n", i, i * 0.5, i % 3);
    svm += fmt::format("{} {}:{}\n", i % 3, i + 1, i + 0.5);
  }
  const std::vector<std::uint64_t> ids = {49, 0, 17, 17};
  const auto small_csv = open_csv(text_file(csv), {});
  const auto large_csv = open_csv(text_file(csv), {.memory_limit = 100});
  EXPECT_TRUE(small_csv->cheap());
  EXPECT_FALSE(large_csv->cheap());
  EXPECT_EQ(read_samples(*small_csv, ids).dense, read_samples(*large_csv, ids).dense);
  EXPECT_EQ(read_samples(*small_csv, ids).classes, read_samples(*large_csv, ids).classes);
  const auto small_svm = open_libsvm(text_file(svm), {});
  const auto large_svm = open_libsvm(text_file(svm), {.memory_limit = 100});
  EXPECT_EQ(read_samples(*small_svm, ids).sparse.columns, read_samples(*large_svm, ids).sparse.columns);
  EXPECT_EQ(read_samples(*small_svm, ids).sparse.values, read_samples(*large_svm, ids).sparse.values);
  EXPECT_EQ(large_svm->spec().input, small_svm->spec().input);
}

}  // namespace
}  // namespace distbelief
