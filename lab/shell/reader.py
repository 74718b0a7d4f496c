"""Who reads this page."""

import streamlit as st


def user() -> str:
    """Whom a run belongs to, for fair turns among those who share this lab."""
    address = st.context.ip_address  # None on this machine itself
    return address if isinstance(address, str) and address else "local"
