// The keys around the recipe: Accelerate's ClusterConfig and SageMakerConfig
// (huggingface/accelerate, commands/config/config_args.py, version 1.15), and those of DeepSpeed
// that choose a precision (Azure/MS-AMP, its section on DeepSpeed).
#include "sdk/cli/imports/import.h"

namespace octavo::cli::imports {
namespace {

constexpr const char *kLauncher = "the launcher goes on reading it";

Answer stay(Import &, const KeyRow &row, const Found &) {
  return {Outcome::kIgnored, row.note};
}

Answer precision(Import &import, const KeyRow &row, const Found &found) {
  std::string name = lower(found.text);
  if (name == "false") name = "no";  // YAML 1.1 takes no for false
  import.set(row.becomes, choice_of(import, found, name, {"no", "fp16", "bf16", "fp8"}), found);
  return {Outcome::kCopied, ""};
}

Answer old_fp16(Import &import, const KeyRow &row, const Found &found) {
  if (!boolean_of(import, found)) return {Outcome::kTranslated, "nothing to set"};
  if (import.find(row.becomes) != nullptr) return {Outcome::kIgnored, "mixed_precision decides"};
  import.set(row.becomes, "fp16", found);
  return {Outcome::kTranslated, row.note};
}

Answer processor(Import &import, const KeyRow &row, const Found &found) {
  if (!boolean_of(import, found))
    return {Outcome::kTranslated, "nothing to set: the host decides on the device"};
  import.set(row.becomes, "cpu", found);
  return {Outcome::kTranslated, row.note};
}

// fp8 before bf16 before fp16, whatever the order in the file.
Answer enabled(Import &import, const KeyRow &row, const Found &found) {
  if (lower(found.text) == "auto")
    return {Outcome::kIgnored, "\"auto\": the launcher decides, so also import its file"};
  if (!boolean_of(import, found)) return {Outcome::kTranslated, "nothing to set"};
  const std::string section(row.key, std::string_view(row.key).find('.'));
  const std::string name = section == "fp16" ? "fp16" : section[0] == 'b' ? "bf16" : "fp8";
  if (section == "msamp") {
    import.backend = "msamp";
    import.set("fp8.backend", "msamp", found);
  }
  const Assignment *other = import.find(row.becomes);
  const std::string had = other == nullptr ? "" : std::get<std::string>(other->value);
  if (had == "fp8" || (had == "bf16" && name == "fp16"))
    return {Outcome::kIgnored, "what does not run in " + had + " stays as the host has it"};
  for (KeyResult &result : import.results)
    if (other != nullptr && result.found.key == other->from.key)
      result = {result.found, Outcome::kIgnored,
                "what does not run in " + name + " stays as the host has it"};
  import.set(row.becomes, name, found);
  return {Outcome::kTranslated, row.note};
}

Answer with_te(Import &import, const KeyRow &row, const Found &found) {
  if (boolean_of(import, found)) return {Outcome::kRejected, reason_of(row)};
  return {Outcome::kTranslated, "nothing to set"};
}

}  // namespace

const std::vector<KeyRow> &host_keys() {
  static const std::vector<KeyRow> table = [] {
    std::vector<KeyRow> rows = {
        {"mixed_precision", kAccelerate, "mixed_precision", "", precision},
        {"fp16", kAccelerate, "mixed_precision", "the name before Accelerate 0.10", old_fp16},
        {"use_cpu", kAccelerate, "device.kind", "true is device.kind = \"cpu\"", processor},
        {"msamp.enabled", kDeepSpeed, "mixed_precision",
         "true is mixed_precision = \"fp8\" with fp8.backend = \"msamp\"", enabled},
        {"msamp.opt_level", kDeepSpeed, "fp8.msamp.opt_level",
         "without it: O1, as Accelerate has "
         "it for DeepSpeed",
         take_level},
        {"msamp.use_te", kDeepSpeed, "",
         "true is refused: one backend runs a linear; set fp8.backend to te or msamp", with_te},
        {"fp8.enabled", kDeepSpeed, "mixed_precision",
         "true is mixed_precision = \"fp8\"; the section's other keys are the keys of fp8_config",
         enabled},
        {"bf16.enabled", kDeepSpeed, "mixed_precision", "true is mixed_precision = \"bf16\"",
         enabled},
        {"bfloat16.enabled", kDeepSpeed, "mixed_precision", "the old name of bf16.enabled",
         enabled},
        {"fp16.enabled", kDeepSpeed, "mixed_precision", "true is mixed_precision = \"fp16\"",
         enabled},
    };
    for (const char *name : {"compute_environment",
                             "distributed_type",
                             "debug",
                             "num_processes",
                             "machine_rank",
                             "num_machines",
                             "gpu_ids",
                             "main_process_ip",
                             "main_process_port",
                             "rdzv_backend",
                             "same_network",
                             "main_training_function",
                             "enable_cpu_affinity",
                             "deepspeed_config",
                             "fsdp_config",
                             "parallelism_config",
                             "megatron_lm_config",
                             "mpirun_config",
                             "downcast_bf16",
                             "tpu_name",
                             "tpu_zone",
                             "tpu_use_cluster",
                             "tpu_use_sudo",
                             "command_file",
                             "commands",
                             "tpu_vm",
                             "tpu_env",
                             "dynamo_config",
                             "dynamo_backend",
                             "ec2_instance_type",
                             "iam_role_name",
                             "image_uri",
                             "profile",
                             "region",
                             "base_job_name",
                             "pytorch_version",
                             "transformers_version",
                             "py_version",
                             "sagemaker_inputs_file",
                             "sagemaker_metrics_file",
                             "additional_args"})
      rows.push_back({name, kAccelerate, "",
                      std::string_view(name) == "deepspeed_config"
                          ? "the launcher goes on reading it; import the JSON file that it names"
                          : kLauncher,
                      stay});
    return rows;
  }();
  return table;
}

}  // namespace octavo::cli::imports
