#include "client/tables/model_output.h"

#include "gtest/gtest.h"

namespace roundhouse::client {
namespace {

v1::Model Usable() {
  v1::Model model;
  model.set_name("/m/a\x1b");
  model.set_path("/m/a");
  model.set_family("qwen3");
  model.set_parameters(1234567);
  model.set_dtype("bf16");
  model.set_bytes(3 << 20);
  model.set_host_limit_bytes(8 << 20);
  model.mutable_full()->set_host_bytes(9 << 20);
  model.mutable_full()->set_problem("needs 9 bytes");
  model.mutable_lora()->set_host_bytes(4 << 20);
  model.mutable_lora()->set_fits(true);
  return model;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ModelOutputTest, ATableOfAll) {
  v1::ListModelsResponse response;
  *response.add_models() = Usable();
  v1::Model* adapter = response.add_models();
  adapter->set_name("job:x");
  adapter->set_adapter(true);
  adapter->set_base_model("base");
  v1::Model* broken = response.add_models();
  broken->set_name("/m/b");
  broken->set_problem("is broken");
  const std::string text = ModelTable(response);
  EXPECT_FALSE(Has(text, "\x1b")) << text;
  for (const char* part :
       {"qwen3", "1.2M", "bf16", "3.0 MiB", "no (9.0 MiB)", "4.0 MiB",
        "adapter of base", "not usable", "\n/m/b is not usable: is broken\n"}) {
    EXPECT_TRUE(Has(text, part)) << part << "\n" << text;
  }
}

TEST(ModelOutputTest, AProblemNamesItsFolderOnceAndWhatToDo) {
  v1::ListModelsResponse response;
  v1::Model* const model = response.add_models();
  model->set_name("/m/b");
  model->set_path("/m/b");
  model->set_problem("/m/b/config.json: has no model_type");
  EXPECT_TRUE(Has(ModelTable(response),
                  "\n/m/b is not usable: config.json: has no model_type\n"
                  "What is not usable needs its file put right, or fetched "
                  "again; docs/models.md says which models there can be.\n"))
      << ModelTable(response);
  EXPECT_TRUE(Has(ModelText(*model),
                  "path:        /m/b\n"
                  "not usable:  config.json: has no model_type\n"))
      << ModelText(*model);
  // A hub id does not say where it lies.
  model->set_name("org/b");
  EXPECT_TRUE(Has(ModelTable(response),
                  "\norg/b is not usable: /m/b/config.json: has no "));
  response.clear_models();
  *response.add_models() = Usable();
  EXPECT_FALSE(Has(ModelTable(response), "not usable"));
}

TEST(ModelOutputTest, EveryNoSaysWhy) {
  v1::ListModelsResponse response;
  v1::Model* model = response.add_models();
  *model = Usable();
  EXPECT_TRUE(Has(ModelTable(response),
                  "\n\"no (SIZE)\" is more than the 8.0 MiB of host memory "
                  "that jobs may have.\n"))
      << ModelTable(response);
  model->mutable_full()->set_host_bytes(0);
  model->mutable_full()->set_problem("one layer fits no device");
  EXPECT_TRUE(Has(ModelTable(response),
                  "\n/m/a\\x1b can't be trained with method: full: one layer "
                  "fits no device\n"))
      << ModelTable(response);
  model->clear_full();
  EXPECT_EQ(ModelTable(response).find("no"), std::string::npos);
}

TEST(ModelOutputTest, OneInFull) {
  const std::string text = ModelText(Usable());
  for (const char* part :
       {"1234567", "no: needs 9 bytes", "4.0 MiB of 8.0 MiB host memory"}) {
    EXPECT_TRUE(Has(text, part)) << text;
  }
  v1::Model broken;
  broken.set_problem("is broken");
  EXPECT_TRUE(Has(ModelText(broken), "not usable:  is broken\n"));
}

}  // namespace
}  // namespace roundhouse::client
