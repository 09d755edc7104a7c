// What a card refuses, and what the operator is told to do about it.

#include "source/drm_card.hpp"

#include <drm.h>
#include <drm_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "unit/drm_fake.hpp"
#include "unit/helpers.hpp"
#include "unit/refusal.hpp"

namespace carveout {
namespace {

using test::refusal;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class DrmCardTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_.handles(), 0U);
    EXPECT_EQ(fake_.buffers(), 0U);
    EXPECT_THAT(fake_.complaints(), IsEmpty());
    EXPECT_EQ(test::open_descriptors(), descriptors_);
  }
  Result<DrmCard> open(const std::string& path) { return DrmCard::open(fake_.calls(), path); }
  // Of a card that opens.
  DrmCard card(test::FakeCard is) {
    fake_.add("card0", std::move(is));
    return test::required(open(fake_.path("card0")));
  }

  test::DrmFake fake_;
  std::size_t descriptors_ = test::open_descriptors();
};

TEST_F(DrmCardTest, KnowsItsPathAndDriver) {
  const DrmCard opened = card({.driver = "nvidia-drm"});
  EXPECT_EQ(opened.path(), fake_.path("card0"));
  EXPECT_EQ(opened.driver(), "nvidia-drm");
}

TEST_F(DrmCardTest, IsNobodysMaster) {
  const DrmCard opened = card({});
  EXPECT_EQ(fake_.asked(DRM_IOCTL_DROP_MASTER), 1U);
  EXPECT_EQ(fake_.asked().back(), DRM_IOCTL_DROP_MASTER);
}

TEST_F(DrmCardTest, OfWhichWeWereNotTheMasterIsNoLessACard) {
  fake_.refuse(DRM_IOCTL_DROP_MASTER, EINVAL);
  const DrmCard opened = card({});
  EXPECT_TRUE(opened.create_dumb(kSliceBytes));
  opened.destroy_dumb(1);
}

TEST_F(DrmCardTest, CutsADriverNameThatIsTooLong) {
  const std::string longest(63, 'x');
  EXPECT_EQ(card({.driver = longest}).driver(), longest);
  fake_.add("card1", {.driver = std::string(500, 'y')});
  EXPECT_EQ(open(fake_.path("card1"))->driver(), std::string(63, 'y'));
}

TEST_F(DrmCardTest, ThatIsNotThere) {
  for (const std::string& path :
       {fake_.path("card7"), std::string("/nowhere/card0"), std::string()}) {
    const auto none = open(path);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::kNotFound);
    EXPECT_THAT(refusal(none),
                AllOf(HasSubstr("card " + path + ":"), HasSubstr("no such card"),
                      HasSubstr("is its driver loaded"), HasSubstr("auto looks for one")));
  }
}

TEST_F(DrmCardTest, MustBeADevice) {
  const test::TemporaryDirectory directory;
  const auto file = open(directory.file("card0", "text"));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kInvalid);
  EXPECT_THAT(refusal(file), HasSubstr("is not a device"));
  const auto folder = open(directory.path());
  ASSERT_FALSE(folder);
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("cannot be opened"), HasSubstr("Is a directory")));
}

TEST_F(DrmCardTest, MustBeADrmDevice) {
  fake_.add("card0", {.driver = ""});
  const auto other = open(fake_.path("card0"));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kInvalid);
  EXPECT_THAT(refusal(other), HasSubstr("is not a DRM device"));
  EXPECT_EQ(fake_.asked(DRM_IOCTL_DROP_MASTER), 0U);
}

TEST_F(DrmCardTest, OfAnotherUserMayNotBeOpened) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("card0", "", 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  const int code = test::run_as_nobody([&] {
    const auto denied = open(path);
    if (denied || denied.error().code != Code::kSystem || denied.error().number != EACCES) return 2;
    const std::string text = refusal(denied);
    if (text.find("may not be opened: run as root, or in the group of the device") ==
        std::string::npos) {
      return 3;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(DrmCardTest, ControlCharactersOfThePathAreNotPrinted) {
  EXPECT_THAT(refusal(open("/dev/\x1b[2J\n")),
              AllOf(HasSubstr("\\x1b[2J\\x0a"), Not(HasSubstr("\n"))));
}

TEST_F(DrmCardTest, NvidiaWithoutModesetNamesTheParameters) {
  fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, ENOSYS);
  fake_.parameter("modeset", "N");
  const auto none = card({.driver = "nvidia-drm"}).create_dumb(mib(64));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kSystem);
  EXPECT_EQ(none.error().number, ENOSYS);
  EXPECT_THAT(refusal(none),
              AllOf(HasSubstr("(nvidia-drm)"), HasSubstr("64 MiB"),
                    HasSubstr("options nvidia_drm modeset=1 fbdev=0 in /etc/modprobe.d"),
                    HasSubstr("modeset is N now")));
}

TEST_F(DrmCardTest, NvidiaOfWhichNothingIsKnownNamesThemToo) {
  fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, EOPNOTSUPP);
  const auto none = card({.driver = "nvidia-drm"}).create_dumb(kSliceBytes);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().number, EOPNOTSUPP);
  EXPECT_THAT(refusal(none),
              AllOf(HasSubstr("modeset=1 fbdev=0"), HasSubstr("modeset is unknown now")));
}

TEST_F(DrmCardTest, OfAnotherDriverThatCannotSuggestsAnotherCard) {
  const DrmCard opened = card({.driver = "amdgpu"});
  for (const int number : {ENOSYS, EOPNOTSUPP}) {
    fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, number, 1);
    const auto none = opened.create_dumb(kSliceBytes);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::kSystem);
    EXPECT_THAT(refusal(none), AllOf(HasSubstr("(amdgpu)"), HasSubstr("its driver cannot"),
                                     HasSubstr("--card PATH, or auto"), Not(HasSubstr("nvidia"))));
  }
}

TEST_F(DrmCardTest, ThatIsEmptyIsExhausted) {
  const DrmCard opened = card({.driver = "nvidia-drm", .capacity = mib(4)});
  const auto fits = opened.create_dumb(mib(4));
  ASSERT_TRUE(fits);
  const auto more = opened.create_dumb(kSliceBytes);
  opened.destroy_dumb(fits->handle);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kExhausted);
  EXPECT_EQ(more.error().number, ENOMEM);
  EXPECT_THAT(refusal(more),
              AllOf(HasSubstr("gives no dumb buffer of 2 MiB"),
                    HasSubstr("it has no such memory left"), Not(HasSubstr("fbdev"))));
}

TEST_F(DrmCardTest, WhoseConsoleHasMemorySaysHowToGetIt) {
  fake_.parameter("fbdev", "Y");
  fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, ENOSPC);
  const auto more = card({.driver = "nvidia-drm"}).create_dumb(kSliceBytes);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kExhausted);
  EXPECT_THAT(refusal(more),
              HasSubstr("the console has a part of it: load the driver with nvidia_drm fbdev=0"));
}

TEST_F(DrmCardTest, DoesNotBlameTheConsoleOfAnother) {
  fake_.parameter("fbdev", "Y");
  const auto more = card({.driver = "vkms", .capacity = mib(2)}).create_dumb(mib(4));
  EXPECT_THAT(refusal(more), AllOf(HasSubstr("no such memory left"), Not(HasSubstr("fbdev"))));
}

TEST_F(DrmCardTest, DoesNotBlameAConsoleThatIsOff) {
  fake_.parameter("fbdev", "N");
  const auto more = card({.driver = "nvidia-drm", .capacity = mib(2)}).create_dumb(mib(4));
  EXPECT_THAT(refusal(more), AllOf(HasSubstr("no such memory left"), Not(HasSubstr("fbdev"))));
}

TEST_F(DrmCardTest, SaysThatItIsNotAllowed) {
  const DrmCard opened = card({});
  for (const int number : {EACCES, EPERM}) {
    fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, number, 1);
    const auto denied = opened.create_dumb(kSliceBytes);
    ASSERT_FALSE(denied);
    EXPECT_EQ(denied.error().code, Code::kSystem);
    EXPECT_THAT(refusal(denied), HasSubstr("it is not allowed"));
  }
}

TEST_F(DrmCardTest, NamesAnErrnoThatNobodyExpects) {
  fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, EIO);
  const auto broken = card({}).create_dumb(kSliceBytes);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::kSystem);
  EXPECT_EQ(broken.error().number, EIO);
  EXPECT_THAT(refusal(broken), AllOf(HasSubstr("gives no dumb buffer"), HasSubstr("Input/output")));
}

TEST_F(DrmCardTest, ShowsAPictureOrNot) {
  test::FakeCard& is = fake_.add("card0");
  const auto opened = open(fake_.path("card0"));
  ASSERT_TRUE(opened);
  EXPECT_FALSE(*opened->is_lit());
  is.picture = 1;
  EXPECT_TRUE(*opened->is_lit());
  is.picture = -1;
  // A card that has no outputs at all.
  for (const int number : {EOPNOTSUPP, EINVAL}) {
    is.picture_errno = number;
    const auto lit = opened->is_lit();
    ASSERT_TRUE(lit);
    EXPECT_FALSE(*lit);
  }
  is.picture_errno = EACCES;
  const auto unknown = opened->is_lit();
  ASSERT_FALSE(unknown);
  EXPECT_THAT(refusal(unknown),
              AllOf(HasSubstr("its outputs cannot be examined"), HasSubstr("not allowed")));
}

class DrmExportTest : public DrmCardTest {
 protected:
  // Of a card that has one buffer.
  void with_buffer(test::FakeCard is) {
    card_.emplace(card(std::move(is)));
    handle_ = test::required(card_->create_dumb(kSliceBytes)).handle;
  }
  void TearDown() override {
    if (card_) card_->destroy_dumb(handle_);
    card_.reset();
    DrmCardTest::TearDown();
  }

  std::optional<DrmCard> card_;
  std::uint32_t handle_ = 0;
};

TEST_F(DrmExportTest, OfADmaBufIsWritableAndCloseOnExec) {
  with_buffer({});
  const auto exported = card_->export_dma_buf(handle_);
  ASSERT_TRUE(exported) << refusal(exported);
  EXPECT_TRUE(test::is_close_on_exec(exported->get()));
}

TEST_F(DrmExportTest, OfADmaBufThatIsRefused) {
  with_buffer({});
  fake_.refuse(DRM_IOCTL_PRIME_HANDLE_TO_FD, EOPNOTSUPP, 1);
  const auto exported = card_->export_dma_buf(handle_);
  ASSERT_FALSE(exported);
  EXPECT_THAT(refusal(exported), AllOf(HasSubstr("does not export a buffer as a dma-buf (PRIME)"),
                                       HasSubstr("its driver cannot")));
}

TEST_F(DrmExportTest, TakesItsOwnDmaBufBack) {
  with_buffer({});
  const auto exported = card_->export_dma_buf(handle_);
  ASSERT_TRUE(exported);
  card_->destroy_dumb(handle_);
  const auto imported = card_->import_dma_buf(exported->get());
  ASSERT_TRUE(imported) << refusal(imported);
  EXPECT_EQ(fake_.handles(), 1U);
  handle_ = *imported;
}

TEST_F(DrmExportTest, DoesNotTakeADmaBufThatIsNone) {
  with_buffer({});
  const test::Pipe pipe = test::make_pipe();
  const auto imported = card_->import_dma_buf(pipe.read_end.get());
  ASSERT_FALSE(imported);
  EXPECT_THAT(refusal(imported), HasSubstr("does not take its own dma-buf back (PRIME)"));
}

TEST_F(DrmExportTest, ToNvidiaAttachesAFreshControlFileEachTime) {
  with_buffer({.driver = "nvidia-drm", .nvkms = true});
  const auto one = card_->export_nvidia(handle_);
  ASSERT_TRUE(one) << refusal(one);
  const auto two = card_->export_nvidia(handle_);
  ASSERT_TRUE(two) << refusal(two);
  EXPECT_EQ(fake_.attached(), 2U);
  EXPECT_TRUE(test::is_close_on_exec(one->get()));
  EXPECT_TRUE(test::is_close_on_exec(two->get()));
}

TEST_F(DrmExportTest, ToNvidiaThatTheDriverDoesNotKnowNamesTheOtherWay) {
  with_buffer({.driver = "nvidia-drm", .nvkms = true});
  for (const int number : {EINVAL, ENOTTY, EPERM, EACCES}) {
    fake_.refuse(test::kNvkmsExportRequest, number, 1);
    const auto refused = card_->export_nvidia(handle_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kSystem);
    EXPECT_EQ(refused.error().number, number);
    EXPECT_THAT(refusal(refused),
                AllOf(HasSubstr("does not attach a buffer to NVIDIA's control device"),
                      HasSubstr("--lend-as dma-buf lends without")));
    EXPECT_TRUE(card_->export_nvidia(handle_));
  }
}

TEST_F(DrmExportTest, ToNvidiaOfAnotherDriver) {
  with_buffer({.driver = "vkms"});
  EXPECT_THAT(refusal(card_->export_nvidia(handle_)),
              AllOf(HasSubstr("(vkms)"), HasSubstr("--lend-as dma-buf lends without")));
}

TEST_F(DrmExportTest, ToNvidiaWithoutItsControlDevice) {
  with_buffer({.driver = "nvidia-drm", .nvkms = true});
  const std::string control = fake_.calls().control;
  std::filesystem::remove(control);
  const auto refused = card_->export_nvidia(handle_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().number, ENOENT);
  EXPECT_THAT(refusal(refused),
              AllOf(HasSubstr(control), HasSubstr("NVIDIA's control device cannot be opened"),
                    HasSubstr("is the driver loaded"), HasSubstr("--lend-as dma-buf needs none")));
}

}  // namespace
}  // namespace carveout
