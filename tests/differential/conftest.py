"""The session with Apache Hudi in it."""

from tests.peers.conftest import hudi_session as hudi_session
