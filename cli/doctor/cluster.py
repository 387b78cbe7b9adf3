"""Whether pods can be sandboxes here: the cluster, its claim, and what Drover may do there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from cli.doctor.engine import IMAGE, KIND
from cli.doctor.finding import Finding, fine, missing, optional

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NAMESPACE, CLAIM = "DROVER_KUBERNETES_NAMESPACE", "DROVER_KUBERNETES_VOLUME_CLAIM"
_SUBJECT: Final = "kubernetes sandboxes"
_KUBERNETES: Final = "kubernetes"
_CONFIG, _IN_POD = "KUBECONFIG", "KUBERNETES_SERVICE_HOST"
_PATIENCE: Final = 3.0  # s
_LEAST: Final = (1, 25)
_NEEDED: Final = (("create", "pods"), ("create", "pods/attach"), ("delete", "pods"))
_HOW: Final = "see docs/kubernetes.md, which has the objects to apply"


def kubernetes(environ: Mapping[str, str]) -> Finding:
    """Whether `kubernetes` sandboxes can be started; missing only where they are the default.

    A cluster is asked only where Drover is told of one: a person's own is not Drover's to ask.
    """
    if environ.get(KIND) != _KUBERNETES and not (environ.get(_CONFIG) or environ.get(_IN_POD)):
        return optional(_SUBJECT, "no cluster is named", f"set {_CONFIG}, or {KIND}=kubernetes")
    amiss = missing if environ.get(KIND) == _KUBERNETES else optional
    import urllib3  # noqa: PLC0415
    from kubernetes import client, config  # noqa: PLC0415  # slow, and seldom needed

    given = client.Configuration()
    given.retries = False
    try:
        if environ.get(_IN_POD) and not environ.get(_CONFIG):
            config.load_incluster_config(given)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=environ.get(_CONFIG), client_configuration=given, persist_config=False
            )
    except Exception as error:  # noqa: BLE001  # the client's parsers raise what they like
        text = f"no cluster is configured ({type(error).__name__})"
        return amiss(_SUBJECT, text, f"run in a pod with a service account, or set {_CONFIG}")
    try:
        with client.ApiClient(given) as api:
            return _examined(client, api, environ, amiss)
    except client.ApiException as error:
        return amiss(_SUBJECT, f"the cluster refuses: {error.status} {error.reason}", _HOW)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        text = f"no API server answers at {given.host}: {type(error).__name__}"
        return amiss(_SUBJECT, text, f"start the cluster, or set {_CONFIG}")


def _examined(
    client: Any,  # noqa: ANN401  # a module that is imported only where it is needed
    api: Any,  # noqa: ANN401
    environ: Mapping[str, str],
    amiss: Callable[[str, str, str], Finding],
) -> Finding:
    namespace = environ.get(NAMESPACE) or "drover-sandboxes"
    claim = environ.get(CLAIM) or "drover-hands"
    version = client.VersionApi(api).get_code(_request_timeout=_PATIENCE).git_version
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < _LEAST:
        return amiss(
            _SUBJECT, f"the cluster is of version {version}", "upgrade it to 1.25 or newer"
        )
    if not environ.get(IMAGE):
        return amiss(_SUBJECT, "no image is named", f"set {IMAGE} to one that the cluster can pull")
    for verb, resource in _NEEDED:
        if not _may(client, api, namespace, verb, resource):
            return amiss(_SUBJECT, f"may not {verb} {resource} in {namespace}", _HOW)
    found = client.CoreV1Api(api).read_namespaced_persistent_volume_claim(
        claim, namespace, _request_timeout=_PATIENCE
    )
    modes = found.status.access_modes or []
    if found.status.phase != "Bound" or "ReadWriteMany" not in modes:
        state = f"the claim {claim} is {found.status.phase}, {', '.join(modes) or 'without a mode'}"
        return amiss(_SUBJECT, state, "make it ReadWriteMany, and see that it is bound")
    return fine(_SUBJECT, f"cluster {version}, namespace {namespace}, claim {claim}")


def _may(client: Any, api: Any, namespace: str, verb: str, resource: str) -> bool:  # noqa: ANN401
    name, _, sub = resource.partition("/")
    asked = client.V1ResourceAttributes(
        namespace=namespace, verb=verb, resource=name, subresource=sub or None
    )
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
    review = client.V1SelfSubjectAccessReview(spec=spec)
    answer = client.AuthorizationV1Api(api).create_self_subject_access_review(
        review, _request_timeout=_PATIENCE
    )
    return bool(answer.status and answer.status.allowed)
