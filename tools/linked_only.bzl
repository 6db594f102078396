"""linked_only: links a library without exposing the headers that it was built from."""

def _linked_only_impl(ctx):
    deps = ctx.attr.deps
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in deps])
    runfiles = ctx.runfiles()
    for dep in deps:
        runfiles = runfiles.merge(dep[DefaultInfo].default_runfiles)
    return [
        DefaultInfo(files = depset(transitive = [dep[DefaultInfo].files for dep in deps]), runfiles = runfiles),
        CcInfo(linking_context = merged.linking_context),
    ]

linked_only = rule(
    implementation = _linked_only_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
    doc = "Its users link `deps`, and neither see nor depend on their headers.",
)
