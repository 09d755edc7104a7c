// Which card `auto` takes, and what it says of the others.

#include <drm.h>
#include <drm_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "source/drm_card.hpp"
#include "unit/drm_fake.hpp"
#include "unit/helpers.hpp"

namespace carveout {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DrmChoiceTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_.handles(), 0U);
    EXPECT_EQ(fake_.buffers(), 0U);
    EXPECT_THAT(fake_.complaints(), IsEmpty());
    EXPECT_EQ(test::open_descriptors(), descriptors_);
  }
  std::string refusal() {
    const auto none = choose_card(fake_.calls());
    if (none) return "no refusal";
    EXPECT_EQ(none.error().code, Code::kNotFound);
    return none.error().describe();
  }

  test::DrmFake fake_;
  std::size_t descriptors_ = test::open_descriptors();
};

TEST_F(DrmChoiceTest, TakesTheOnlyCard) {
  fake_.add("card1");
  const auto choice = choose_card(fake_.calls());
  ASSERT_TRUE(choice) << choice.error().describe();
  EXPECT_EQ(choice->card.path(), fake_.path("card1"));
  EXPECT_THAT(choice->passed_over, IsEmpty());
  // One for `card`: what was only tried is closed again.
  EXPECT_EQ(test::open_descriptors(), descriptors_ + 1);
}

TEST_F(DrmChoiceTest, PrefersNvidiaWhereverItStands) {
  fake_.add("card0", {.driver = "ast"});
  fake_.add("card1", {.driver = "nvidia-drm"});
  fake_.add("card2", {.driver = "vkms"});
  const auto choice = choose_card(fake_.calls());
  ASSERT_TRUE(choice) << choice.error().describe();
  EXPECT_EQ(choice->card.path(), fake_.path("card1"));
  EXPECT_EQ(choice->card.driver(), "nvidia-drm");
  EXPECT_THAT(choice->passed_over,
              ElementsAre("card " + fake_.path("card0") + " (ast): it is not NVIDIA's",
                          "card " + fake_.path("card2") + " (vkms): it is not NVIDIA's"));
}

TEST_F(DrmChoiceTest, OtherwiseTakesTheFirst) {
  fake_.add("card2", {.driver = "ast"});
  fake_.add("card0", {.driver = "vkms"});
  const auto choice = choose_card(fake_.calls());
  ASSERT_TRUE(choice) << choice.error().describe();
  EXPECT_EQ(choice->card.path(), fake_.path("card0"));
  EXPECT_THAT(choice->passed_over,
              ElementsAre("card " + fake_.path("card2") + " (ast): an earlier one does"));
}

// All of the reservation may be lent already, by the process that this one takes over from.
TEST_F(DrmChoiceTest, TakesNvidiaThoughItHasNothingLeft) {
  fake_.add("card0", {.driver = "vkms"});
  fake_.add("card1", {.driver = "nvidia-drm", .capacity = Bytes(0)});
  const auto choice = choose_card(fake_.calls());
  ASSERT_TRUE(choice) << choice.error().describe();
  EXPECT_EQ(choice->card.path(), fake_.path("card1"));
  EXPECT_THAT(choice->passed_over,
              ElementsAre("card " + fake_.path("card0") + " (vkms): it is not NVIDIA's"));
}

TEST_F(DrmChoiceTest, PassesOverThoseThatCannotAndSaysWhy) {
  fake_.add("card0", {.driver = ""});
  fake_.add("card1", {.driver = "nvidia-drm"});
  fake_.add("card2", {.driver = "vkms"});
  fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, ENOSYS, 1);
  const auto choice = choose_card(fake_.calls());
  ASSERT_TRUE(choice) << choice.error().describe();
  EXPECT_EQ(choice->card.path(), fake_.path("card2"));
  EXPECT_THAT(choice->passed_over, ElementsAre(HasSubstr("card0: is not a DRM device"),
                                               AllOf(HasSubstr("card1 (nvidia-drm): "),
                                                     HasSubstr("modeset=1 fbdev=0"))));
}

TEST_F(DrmChoiceTest, NamesEveryCardWhenNoneWillDo) {
  fake_.add("card0", {.driver = ""});
  fake_.add("card1", {.driver = "nvidia-drm"});
  fake_.add("card2", {.driver = "amdgpu"});
  fake_.refuse(DRM_IOCTL_MODE_CREATE_DUMB, ENOSYS);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no card gives dumb buffers; "),
                               HasSubstr("card0: is not a DRM device"),
                               HasSubstr("card1 (nvidia-drm): "), HasSubstr("modeset=1 fbdev=0"),
                               HasSubstr("card2 (amdgpu): "), HasSubstr("its driver cannot")));
}

TEST_F(DrmChoiceTest, SaysThatThereIsNoCard) {
  // A render node is none.
  std::filesystem::create_symlink("/dev/null", fake_.path("renderD128"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr(fake_.calls().devices), HasSubstr("there is no card"),
                               HasSubstr("is a DRM driver loaded"),
                               HasSubstr("nvidia_drm modeset=1 fbdev=0")));
  std::filesystem::remove_all(fake_.calls().devices);
  EXPECT_THAT(refusal(), HasSubstr("there is no card"));
}

TEST_F(DrmChoiceTest, TriesACardRatherThanAskWhatItCan) {
  // vgem denies in GET_CAP what it can: nothing but these may be asked.
  fake_.add("card0");
  ASSERT_TRUE(choose_card(fake_.calls()));
  EXPECT_THAT(fake_.asked(), ElementsAre(DRM_IOCTL_VERSION, DRM_IOCTL_DROP_MASTER,
                                         DRM_IOCTL_MODE_CREATE_DUMB, DRM_IOCTL_MODE_DESTROY_DUMB));
}

}  // namespace
}  // namespace carveout
