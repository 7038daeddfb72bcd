# SPDX-License-Identifier: Apache-2.0
"""What a project lacks and what its organisation forbids, with Google's texts.

Wordings marked *attested* were seen in public; Compute Engine's arrive in the operation, since Cloud TPU accepts a call
before it asks there for VMs.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.cloud.tpu_v2.types import NetworkConfig, Node
from google.rpc import code_pb2

from localcloud.rules import errors
from localcloud.rules.errors import CloudError

EXTERNAL_IP = "compute.vmExternalIpAccess"
GUEST_ATTRIBUTES = "compute.disableGuestAttributesAccess"
_UNIQUE = "local-0001"
_PERIMETER = f"Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: {_UNIQUE}"
_DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"


@dataclass(frozen=True)
class StorageRefusal:
    """Why Cloud Storage admits no request to a project's buckets.

    :param reason: of its JSON interface.
    :param text: for people.
    :param xml_code: of its XML interface.
    """

    reason: str
    text: str
    xml_code: str


@dataclass(frozen=True)
class ProjectRules:
    """How a project differs from a new one outside of any organisation.

    :param constraints: organisation policies in force, of :data:`EXTERNAL_IP` and :data:`GUEST_ATTRIBUTES`.
    :param perimeter: VPC Service Controls keep the caller out.
    :param billing: the project is linked to an open billing account.
    :param quota_project: the caller's credentials name a project for their calls, as those of service accounts do.
    :param networks: names of its VPC networks.
    :param default_account: the default account of Compute Engine can be used.
    """

    constraints: frozenset[str] = frozenset()
    perimeter: bool = False
    billing: bool = True
    quota_project: bool = True
    networks: frozenset[str] = frozenset({"default"})
    default_account: bool = True

    def admit(self, project_number: str) -> None:
        """Refuse a call that the project or its organisation does not admit.

        :raises CloudError: PERMISSION_DENIED, for any method (attested).
        """
        if self.perimeter:
            raise _denied(_PERIMETER, "SECURITY_POLICY_VIOLATED", uid=_UNIQUE)
        if not self.quota_project:
            raise _denied(
                "Your application is authenticating by using local Application Default Credentials. The "
                "tpu.googleapis.com API requires a quota project, which is not set by default. To learn how to set "
                "your quota project, see https://cloud.google.com/docs/authentication/adc-troubleshooting/user-creds .",
                "SERVICE_DISABLED",
                consumer="projects/764086051850",
            )
        if not self.billing:
            raise _denied(
                f"This API method requires billing to be enabled. Please enable billing on project #{project_number} "
                "by visiting https://console.developers.google.com/billing/enable?project="
                f"{project_number} then retry.",
                "BILLING_DISABLED",
                consumer=f"projects/{project_number}",
            )

    def storage_refusal(self) -> StorageRefusal | None:
        """Return why Cloud Storage refuses every request to a bucket of the project (attested), None if it does not.

        A quota project is asked for by other services only.
        """
        if self.perimeter:
            return StorageRefusal("vpcServiceControls", _PERIMETER, "SecurityPolicyViolated")
        if not self.billing:
            text = "The billing account for the owning project is disabled in state absent"
            return StorageRefusal("accountDisabled", text, "UserProjectAccountProblem")
        return None

    def refusal(self, node: Node, project_number: str) -> CloudError | None:
        """Return why Compute Engine refuses the VMs of a node (attested), None if it does not."""
        for config in list(node.network_configs) or [node.network_config]:
            refused = self._network_refusal(node, config, project_number)
            if refused is not None:
                return refused
        email = node.service_account.email
        if not self.default_account and email.endswith(_DEFAULT_ACCOUNT):
            return errors.invalid(f'Service account "{email}" is disabled.')
        return None

    def _network_refusal(self, node: Node, config: NetworkConfig, project_number: str) -> CloudError | None:
        if config.enable_external_ips and EXTERNAL_IP in self.constraints:
            instance = node.name.replace("/locations/", "/zones/").replace("/nodes/", "/instances/t1v-n-")
            return errors.precondition(
                f"Constraint constraints/{EXTERNAL_IP} violated for project {project_number}. Add instance "
                f"{instance}-w-0 to the constraint to use external IP with it."
            )
        if config.network.rpartition("/")[2] not in self.networks:
            return errors.invalid(
                f"Invalid value for field 'resource.networkInterfaces[0].network': '{config.network}'. The referenced "
                "network resource cannot be found."
            )
        return None

    def admit_guest_attributes(self, project_number: str) -> None:
        """Refuse to show guest attributes where the organisation forbids them.

        :raises CloudError: FAILED_PRECONDITION, the code of Compute Engine's violated constraints.
        """
        if GUEST_ATTRIBUTES in self.constraints:
            raise errors.precondition(
                f"Constraint constraints/{GUEST_ATTRIBUTES} violated for project {project_number}."
            )


def _denied(text: str, reason: str, **metadata: str) -> CloudError:
    return CloudError(code_pb2.PERMISSION_DENIED, text, [errors.error_info(reason, **metadata)])
