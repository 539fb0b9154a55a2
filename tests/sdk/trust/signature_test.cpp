// Signatures that minisign 0.11 made, and every way in which they can fail to hold.
#include "sdk/src/trust/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/minisign.h"

namespace octavo {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// `minisign -G -W`, then `minisign -S` and `minisign -S -l` over this text.
constexpr const char *kText = "manifest_version = 1\n";
constexpr const char *kKeyLine = "RWSw3KnxPk5hhBhwB4KZ+651s9HlHxha90u2BPv0SayTmLkNR8OXaLzF";
constexpr const char *kKeyName = "84614E3EF1A9DCB0";
constexpr const char *kOtherBytes =
    "the signature of the key 84614E3EF1A9DCB0 is not one of these bytes";
constexpr const char *kOtherComment =
    "the trusted comment is not the one that the key 84614E3EF1A9DCB0 signed";
constexpr const char *kHashed =
    "untrusted comment: signature from minisign secret key\n"
    "RUSw3KnxPk5hhC3T7XGYyL25BNs7Uabt1DG6dKHK+XSYiB25jAeNZq9WTNigd7DNaqHstyicr5Skr5hTme1JHXZc6TQN/"
    "Td7oAU=\n"
    "trusted comment: file:m.toml\n"
    "YuxKftufoMaSUxEm0dooWtaSCVPRaO+LS7gVwA1lXJBR/GwcyQ5zKeQY4bQXVV/gicRJ+YfW3DSnJRuY/xpJBA==\n";
constexpr const char *kPlain =
    "untrusted comment: signature from minisign secret key\n"
    "RWSw3KnxPk5hhODCXC4kIHLGhFefhCP36jAxGMhBcEH4aZ/"
    "xf6Ng6OVJaSSHR0zfmXRBTZLvVkHffSf9YyuMb30OPO6pTCCNxw0=\n"
    "trusted comment: legacy\n"
    "UmHtGJacxd4VIEtlaH+eWOGPMWTByhTHatQjGnQiF5qu3jCtAdLa1QgS+csdiqvC611hH4L1kc0YlF2gNebQCA==\n";

std::vector<PublicKey> keys() {
  return {*parse_public_key(kKeyLine, "here")};
}

std::string problem(std::string_view bytes, std::string_view signature,
                    const std::vector<PublicKey> &known = keys()) {
  PublicKey by;
  return signature_problem(bytes, signature, known, &by);
}

TEST(Signature, of_minisign_holds) {
  PublicKey by;
  EXPECT_EQ(signature_problem(kText, kHashed, keys(), &by), "");
  EXPECT_EQ(key_name(by), kKeyName);
  EXPECT_EQ(by.origin, "here");
  EXPECT_EQ(problem(kText, kPlain), "");
}

TEST(Signature, public_key_alone_or_in_a_file) {
  const std::string file =
      std::string("untrusted comment: minisign public key\n") + kKeyLine + "\n";
  const auto key = parse_public_key(file, "f");
  ASSERT_TRUE(key);
  EXPECT_EQ(key_name(*key), kKeyName);
  EXPECT_TRUE(parse_public_key(std::string(kKeyLine) + "\r\n", ""));
  std::string other = kKeyLine;
  other[0] = 'A';  // another algorithm
  EXPECT_FALSE(parse_public_key(other, ""));
  for (const char *bad : {"", "untrusted comment: x\n", "keys/te.pub",
                          "RWSw3KnxPk5hhBhwB4KZ+651s9HlHxha90u2BPv0SayTmLkNR8OX",
                          "RWSw3KnxPk5hhBhwB4KZ+651s9HlHxha90u2BPv0SayTmLkNR8OXaLzFx"})
    EXPECT_FALSE(parse_public_key(bad, "")) << bad;
}

TEST(Signature, every_changed_byte_of_the_file_is_seen) {
  for (const char *signature : {kHashed, kPlain})
    for (size_t i = 0; i <= std::string_view(kText).size(); ++i) {
      std::string changed = kText;
      if (i < changed.size())
        changed[i] ^= 1;
      else
        changed += "\n";
      EXPECT_EQ(problem(changed, signature), kOtherBytes);
    }
}

TEST(Signature, every_changed_character_of_the_signature_is_seen) {
  const std::string whole = kHashed;
  const size_t start = whole.find('\n') + 1;  // the untrusted comment is no part of it
  for (size_t i = start; i + 1 < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_NE(problem(kText, changed), "") << "character " << i << " of " << whole;
  }
}

TEST(Signature, every_truncation_is_seen) {
  const std::string whole = kHashed;
  for (size_t size = 0; size + 1 < whole.size(); ++size)
    EXPECT_NE(problem(kText, whole.substr(0, size)), "") << size;
}

TEST(Signature, another_key) {
  const test::Signer signer;
  EXPECT_EQ(problem(kText, signer.sign(kText), {*parse_public_key(signer.public_line(), "")}), "");
  EXPECT_THAT(problem(kText, signer.sign(kText)),
              StartsWith(std::string("expected a signature of one of the keys ") + kKeyName +
                         " (here), found one of the key "));
  EXPECT_THAT(problem(kText, kHashed, {}), HasSubstr("one of the keys nothing"));
}

// The id is not secret: whoever copies it still lacks the key.
TEST(Signature, id_of_another_key) {
  const test::Signer signer;
  std::vector<PublicKey> forged = {*parse_public_key(signer.public_line(), "")};
  forged[0].id = keys()[0].id;
  EXPECT_THAT(problem(kText, kHashed, forged), HasSubstr("is not one of these bytes"));
}

TEST(Signature, changed_trusted_comment) {
  std::string changed = kHashed;
  changed.replace(changed.find("file:m"), 6, "file:n");
  EXPECT_EQ(problem(kText, changed), kOtherComment);
}

TEST(Signature, another_algorithm) {
  std::string changed = kHashed;
  changed.replace(changed.find("RUSw"), 4, "RUWw");  // "EE" in place of "ED"
  EXPECT_EQ(problem(kText, changed), "expected an Ed25519 signature, found another algorithm");
}

TEST(Signature, another_text) {
  EXPECT_EQ(problem(kText, "-----BEGIN PGP SIGNATURE-----\n"),
            "expected the four lines of a signature of minisign, found something else");
  std::string longer = kHashed;
  longer.replace(longer.find("oAU=\n"), 4, "oAUA");  // one byte more
  EXPECT_EQ(problem(kText, longer),
            "expected the four lines of a signature of minisign, found something else");
}

TEST(Signature, keys_and_lines_of_other_forms) {
  EXPECT_FALSE(parse_public_key(std::string(kKeyLine) + "!", ""));
  EXPECT_FALSE(parse_public_key("", ""));
  EXPECT_FALSE(parse_public_key("untrusted comment: alone", ""));
  EXPECT_FALSE(parse_public_key("\n", ""));
  EXPECT_TRUE(parse_public_key(std::string("untrusted comment: x\r\n") + kKeyLine + "\r\n", ""));
  const std::string empty_line = "\n\n\n\n";
  EXPECT_EQ(problem(kText, empty_line),
            "expected the four lines of a signature of minisign, found something else");
}

}  // namespace
}  // namespace octavo
