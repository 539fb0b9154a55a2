// The stages before a plugin is loaded, one plugin after the other.
#include "probe_all.h"

#include "manifest_requires.h"

namespace octavo {

std::vector<ProbedPlugin> probe_all(const Config &config, const TrustPolicy &trust,
                                    const Discovery &discovery, const Hardware &hardware) {
  std::vector<ProbedPlugin> all;
  for (const FoundManifest &found : discovery.manifests) {
    if (!found.shadowed_by.empty()) continue;
    ProbedPlugin p{found.name, found.path, {}};
    auto manifest = read_manifest(found.path, p.report.verdicts);
    std::string sha256;
    if (!manifest || !check_requirements(*manifest, hardware, p.report.verdicts)) {
      p.report.stage = ProbeStage::kManifest;
      p.report.how = "refused by its manifest";
    } else if (!check_trust(*manifest, trust, &sha256, p.report.verdicts)) {
      p.report.stage = ProbeStage::kPolicy;
      p.report.how = "refused by plugins.trust";
    } else {
      p.report = probe_plugin(config, hardware, *manifest, sha256);
    }
    all.push_back(std::move(p));
  }
  return all;
}

}  // namespace octavo
