#include "data/formats/image.h"

#include <png.h>
#include <turbojpeg.h>

#include "data/formats/image_folder.h"
#include "data/test_folder.h"

namespace distbelief {
namespace {

using testing::HasSubstr;

/// A picture that goes from dark to light downwards in red, rightwards in green; blue is constant.
Image gradient(std::int64_t height, std::int64_t width) {
  Image image{height, width, {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<std::uint8_t>(255 * y / height));
      image.pixels.push_back(static_cast<std::uint8_t>(255 * x / width));
      image.pixels.push_back(100);
    }
  }
  return image;
}

std::string png_of(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string out(size, '\0');
  png_image_write_to_memory(&png, out.data(), &size, 0, image.pixels.data(), 0, nullptr);
  out.resize(size);
  return out;
}

std::string jpeg_of(const Image& image) {
  tjhandle encoder = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  tjCompress2(encoder, image.pixels.data(), static_cast<int>(image.width), 0, static_cast<int>(image.height), TJPF_RGB,
              &bytes, &size, TJSAMP_444, 95, 0);
  std::string out(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(encoder);
  return out;
}

Image decode(const std::string& text, std::int64_t height = 0, std::int64_t width = 0) {
  return decode_image(std::as_bytes(std::span(text)), "a-file", height, width);
}

TEST(Image, PngComesBackExactly) {
  const Image image = gradient(13, 7);
  const Image back = decode(png_of(image));
  EXPECT_EQ(back.height, 13);
  EXPECT_EQ(back.width, 7);
  EXPECT_EQ(back.pixels, image.pixels);
}

TEST(Image, JpegComesBackNearlyAndSmallerWhenThatIsEnough) {
  const Image image = gradient(64, 48);
  const std::string jpeg = jpeg_of(image);
  const Image back = decode(jpeg);
  ASSERT_EQ(back.pixels.size(), image.pixels.size());
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    EXPECT_NEAR(back.pixels[i], image.pixels[i], 12);
  }
  EXPECT_EQ(decode(jpeg, 16, 12).height, 16);
  EXPECT_EQ(decode(jpeg, 17, 12).height, 32);
  EXPECT_EQ(decode(jpeg, 100, 100).height, 64);
}

TEST(Image, EveryTruncationIsAnError) {
  for (const std::string& whole : {png_of(gradient(9, 9)), jpeg_of(gradient(24, 24))}) {
    for (std::size_t size = 0; size < whole.size() - 2; size += 3) {
      EXPECT_THAT(error_of([&] { decode(whole.substr(0, size)); }), HasSubstr("a-file: ")) << size;
    }
  }
  std::string corrupt = png_of(gradient(9, 9));
  corrupt[corrupt.size() / 2] ^= 0x55;
  EXPECT_THAT(error_of([&] { decode(corrupt); }), HasSubstr("broken PNG"));
  EXPECT_THAT(error_of([&] { decode("GIF89a"); }), HasSubstr("neither JPEG nor PNG"));
}

TEST(Image, EnormousSizesAreRefused) {
  std::string png = png_of(gradient(2, 2));
  png[16] = 0x7F;  // the width's first byte; the checksum of the header is then wrong as well
  EXPECT_THAT(error_of([&] { decode(png); }), HasSubstr("a-file: "));
}

TEST(Image, FittingKeepsProportionsAndCutsTheMiddle) {
  const Image image = gradient(40, 80);
  std::vector<float> out(3 * 20 * 20);
  fit_image(image, 3, 20, 20, out.data());
  // Red spans all rows; green only the middle half of the columns.
  EXPECT_NEAR(out[10], 0.5 / 40, 0.02);
  EXPECT_NEAR(out[19 * 20 + 10], 38.5 / 40, 0.02);
  EXPECT_NEAR(out[400 + 10 * 20], 20.5 / 80, 0.02);
  EXPECT_NEAR(out[400 + 10 * 20 + 19], 58.5 / 80, 0.02);
  EXPECT_NEAR(out[800 + 55], 100 / 255.0, 0.001);
}

TEST(Image, TheSameSizeIsACopyAndOnePixelFillsAll) {
  const Image image = gradient(5, 6);
  std::vector<float> out(3 * 5 * 6);
  fit_image(image, 3, 5, 6, out.data());
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_NEAR(out[i], static_cast<float>(image.pixels[3 * i]) / 255.0F, 1e-6);
  }
  const Image pixel{1, 1, {255, 255, 255}};
  std::vector<float> large(7 * 9);
  fit_image(pixel, 1, 7, 9, large.data());
  for (const float value : large) {
    EXPECT_NEAR(value, 1.0F, 1e-5);
  }
}

TEST(ImageFolder, ClassesAreFoldersAndFilesAreDecodedOnRead) {
  const TestFolder folder;
  folder.write("dog/b.png", png_of(gradient(8, 8)));
  folder.write("dog/a.JPG", jpeg_of(gradient(32, 32)));
  folder.write("cat/c.jpeg", png_of(gradient(8, 8)));  // the contents count, not the name
  folder.write("cat/notes.txt", "no image");
  folder.write("empty/notes.txt", "no image");
  const auto classes = find_class_folders(folder.path());
  EXPECT_EQ(classes, (std::vector<std::string>{"cat", "dog"}));
  const auto data = open_image_folder(folder.path(), classes, {});
  EXPECT_EQ(data->spec().input, (Shape{3, 8, 8}));
  EXPECT_EQ(data->size(), 3U);
  EXPECT_FALSE(data->cheap());
  EXPECT_THAT(data->sample_name(1), testing::EndsWith("dog/a.JPG"));
  Batch batch;
  data->read(std::vector<std::uint64_t>{1, 0}, 0, batch);
  EXPECT_EQ(batch.classes, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(batch.dense.size(), 2U * 3 * 8 * 8);
  EXPECT_EQ(open_image_folder(folder.path(), classes, {.height = 4, .width = 6, .channels = 1})->spec().input,
            (Shape{1, 4, 6}));
}

TEST(ImageFolder, ABrokenFileIsNamedWhenItIsRead) {
  const TestFolder folder;
  folder.write("cat/a.png", png_of(gradient(8, 8)));
  folder.write("cat/b.png", png_of(gradient(8, 8)).substr(0, 60));
  const auto data = open_image_folder(folder.path(), {"cat"}, {});
  Batch batch;
  EXPECT_THAT(error_of([&] { data->read(std::vector<std::uint64_t>{1}, 0, batch); }),
              HasSubstr("cat/b.png: broken PNG"));
  EXPECT_THAT(error_of([&] { open_images(folder.path(), {}); }), HasSubstr("expected .jpg, .jpeg or .png"));
  EXPECT_EQ(open_images(folder.path() / "cat/a.png", {})->spec().classes, 0);
  EXPECT_THAT(error_of([&] { open_images(folder.path() / "cat", {.channels = 2}); }), HasSubstr("expected 1 or 3"));
}

}  // namespace
}  // namespace distbelief
